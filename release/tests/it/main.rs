//! Images and archives, made and read back.

mod archive;
