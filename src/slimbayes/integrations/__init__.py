"""Other people's tools: each module needs the extra of its name, and nothing in the rest of slimbayes needs one."""
