"""The commands, a module each: they read, ask `pages` what to say, and draw."""
