"""Who signed a model: OpenSSF's model signatures (Sigstore bundles), verified before anything reads the model's own bytes."""
