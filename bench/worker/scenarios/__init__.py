"""What is measured, a module for each kind of question. Every scenario returns its rounds as plain records."""
