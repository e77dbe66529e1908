//! Tests of verbs with plugins that only record their calls. State and result cache are real files.

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
mod unserved;
mod world;
