"""The files of a federation: the silo file, certificates and keys, and the directory that `rpdp deploy init` writes."""
