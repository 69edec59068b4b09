"""Pages, tables and plots made from run folders."""
