//! What is wrong on this node, and what helps: each look adds lines to an examination, and changes nothing.

mod daemon;
mod images;
mod network;
mod service;
mod settings;
mod staging;

use std::{fmt, path::Path};

use node::{discover::Report, root::Root};
use serde::Serialize;

use crate::{
    commands::install::below,
    place::{self, Place},
    plan::Distro,
};

/// What was seen beside the runtime and its directories.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Examination {
    /// A subject, and how it stands.
    facts: Vec<(&'static str, String)>,
    /// What works, but should be looked at.
    notes: Vec<String>,
    /// What does not work, with the cure.
    pub(crate) problems: Vec<String>,
}

impl Examination {
    fn fact(&mut self, subject: &'static str, text: impl Into<String>) {
        self.facts.push((subject, text.into()));
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (subject, text) in &self.facts {
            writeln!(f, "{subject:<14} {text}")?;
        }
        for note in &self.notes {
            writeln!(f, "note           {note}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem        {problem}")?;
        }
        Ok(())
    }
}

/// What every look is about.
struct Node<'a> {
    root: &'a Root,
    place: &'a Place,
}

impl Node<'_> {
    /// A path below the data directory as this process reaches it.
    fn data(&self, path: &str) -> std::path::PathBuf {
        below(self.root.name(), &self.place.data_dir).join(path)
    }
}

/// Looks at everything but the runtime, whose report is there already.
pub(crate) fn examine(
    root: &Root,
    report: &Report,
    distro: Option<Distro>,
    data_dir: Option<&Path>,
) -> Examination {
    let mut found = Examination::default();
    match place::find(root, distro, data_dir) {
        Ok(Some(place)) => {
            let node = Node {
                root,
                place: &place,
            };
            let dir = place.data_dir.display();
            found.fact(
                "distro",
                format!("{} at {dir} ({})", place.distro.as_str(), place.source),
            );
            let settings = settings::look(&node, &mut found);
            service::look(&node, &mut found);
            staging::look(&node, &settings, &mut found);
            images::look(&node, &settings, &mut found);
        }
        Ok(None) => found.note(
            "neither K3s nor RKE2 has data at its usual place: name it with --data-dir and --distro",
        ),
        Err(error) => found.problem(error.to_string()),
    }
    daemon::look(root, &mut found);
    network::look(root, report, &mut found);
    found
}

#[cfg(test)]
mod tests;
