//! How the distro is started: the unit, our drop-in, and the hint that a start has left.

use std::path::Path;

use node::runtime::{self, HINT};

use super::{Examination, Node};
use crate::{service, unit};

pub(super) fn look(node: &Node<'_>, found: &mut Examination) {
    match service::find(node.root, Some(node.place.distro), None) {
        Ok(Some(service)) => match &service.drop_in {
            None => found.fact(
                "service",
                format!(
                    "{} starts {} without us",
                    service.name,
                    node.place.distro.as_str()
                ),
            ),
            Some(text) => {
                found.fact("service", format!("{} starts through us", service.name));
                if unit::made_of(text) != Some(&service.command) {
                    found.problem(format!(
                        "{} has changed since its drop-in was made, and what it says now is not used: run `multus-distro install` again",
                        service.name
                    ));
                }
                let start = unit::exec_start(std::slice::from_ref(text)).unwrap_or_default();
                let words = unit::words(&start);
                let program = words
                    .first()
                    .map(|word| word.trim_start_matches(['-', ':', '+', '!']));
                if let Some(program) = program.filter(|path| !node.root.is_executable(path)) {
                    found.problem(format!(
                        "{} starts {program}, which is no program: put it there, or run `install` where it is",
                        service.name
                    ));
                }
            }
        },
        Ok(None) => {}
        Err(error) => found.note(error.to_string()),
    }
    if node.root.exists(Path::new(HINT)) && runtime::hint(node.root).is_none() {
        found.note(format!(
            "{HINT} is of a start that has ended: start the distro through multus-distro, or remove it"
        ));
    }
}
