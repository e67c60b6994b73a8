"""Reports on work directories: data gathered and systems compared, without models or drawing."""
