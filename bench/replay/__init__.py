"""A service that follows real arrivals: with the operator's HPA, with an HPA on CPU, and with KEDA."""
