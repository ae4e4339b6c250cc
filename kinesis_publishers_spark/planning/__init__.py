"""How the end of a micro-batch is found and how its records reach the tasks."""
