"""Example models and their data, built from seeds: ``python -m examples.models OUTDIR``.

Three models of three sizes, each with data whose truth is known, so that a job can be judged by
its answers and not only by its speed:

``digits``
    a 64-32-10 perceptron; a run costs microseconds, so it shows the cost of the protocol.
``lane``
    a fully convolutional lane-marking net; a run costs milliseconds and moves large tensors.
``magika``
    Google's file type net, taken out of its wheel; the batch example, with any tree of files.

Equal sources, package versions and processor features give equal files, byte for byte; another
kind of processor may add in another order and round the last bit of a weight differently.
The package needs the development requirements; neither image contains it.
"""
