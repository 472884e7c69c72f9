"""`python -m proxy.workers FD`: one worker; its supervisor is at the other end of that socket."""

import sys

from proxy.workers.worker import main

main(int(sys.argv[1]))
