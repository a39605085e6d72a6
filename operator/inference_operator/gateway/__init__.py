"""One front door for all models: the control plane of the Envoys in front of them. Imported only where the chart turns it on."""
