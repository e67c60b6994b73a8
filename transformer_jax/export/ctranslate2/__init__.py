"""Model directories for CTranslate2, the C++ engine (https://github.com/OpenNMT/CTranslate2)."""
