# The program writes its own completion, so that both are of one version.
plimsoll completions fish | source
