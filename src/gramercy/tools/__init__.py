"""What a tool is: definition, schema, arguments, registry, library, binding. Knows nothing of running one."""
