"""The laboratory's commands (entry points "akunu.commands")."""
