"""What is measured, a module for each kind of question. Every cell returns its rounds as plain records."""
