"""The documentation as a site: mkdocs reads mkdocs.yml and docs/, and writes build/site."""
