//! Discovery and installation: a directory stands for the node's root, a fake CRI server for its runtime.

#![cfg(test)]

mod node;

mod found;
mod rejected;

mod installed;
