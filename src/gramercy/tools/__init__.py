"""The definition of a tool: schema, arguments, registry, library, binding. Knows nothing of running one."""
