"""What the plug-in's pages say."""
