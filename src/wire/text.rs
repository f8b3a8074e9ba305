//! The text inside a JSON string: counted, cut and digested without decoding it.
