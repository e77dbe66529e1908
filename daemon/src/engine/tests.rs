//! Verbs against plugins that only write down how they were called. State and result cache are real files.

mod add;
mod del;
mod device_info;
mod earlier;
mod faults;
mod gc;
mod gc_cache;
mod given;
mod hand_over;
mod plug;
mod power;
mod recall;
mod routes;
mod routes_back;
mod sweep;
mod undeletable;
mod unplug;
mod unsupported;
mod world;
