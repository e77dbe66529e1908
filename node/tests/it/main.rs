//! Discovery on nodes as they are found: a folder stands for the node's root, a small server for its runtime.

#![cfg(test)]

mod doubted;
mod found;
mod installed;
mod node;
