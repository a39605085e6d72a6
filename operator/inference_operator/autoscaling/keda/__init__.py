"""KEDA's external scaler: the operator's numbers for ScaledObjects, by gRPC. Imported only where the chart turns it on."""
