"""`python -m inference_operator`."""

import sys

from inference_operator.app import main

sys.exit(main())
