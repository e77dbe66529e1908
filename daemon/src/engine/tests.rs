//! Tests of verbs with plugins that only record their calls. State and result cache are real files.

mod fixture;

mod add;
mod adopted_results;
mod arguments;
mod cached_results;
mod deadlines;
mod del;
mod del_retry;
mod device_info;
mod explicit;
mod faults;
mod gc;
mod hand_off;
mod limits;
mod pending_status;
mod power;
mod reconcile;
mod routes;
mod stale;
mod status;
mod unsupported;
