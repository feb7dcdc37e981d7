"""Files for kernel authors: a first case, a case drafted from a launch function."""
