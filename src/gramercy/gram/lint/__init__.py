"""What is wrong or doubtful in a gram text, with codes and places."""
