//! What can go wrong with one request, and what the client may read of it.
//!
//! Every stage has its own small error enum; each is converted once, here, into a [`Failure`].
//! Library errors never reach the client: they can hold URLs and keys, and go to the log only.
