//! The records of a node about addresses of pools: one file for each interface of a container, which is written before a request is sent. A
//! DEL writes that the use has ended and waits for nobody; the addresses are freed by what is on disk.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Definition, Owner, pool};
use crate::range::Subnet;
use crate::store::{boot_id, document, write};
use crate::wire::{Attachment, Pod, all, text};

/// An interface of a container, and what it has of pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub attachment: Attachment,
    pub pod: Pod,
    /// The network's name, as its configuration has it.
    pub network: String,
    pub state: State,
    pub uses: Vec<Use>,
}

/// How far a request for addresses has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is under way: no pod has an address yet.
    Asked,
    Given,
    /// The addresses are to be freed.
    Ended,
}

/// What an interface may have of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The namespace of the objects.
    pub namespace: String,
    pub subnet: Subnet,
    pub network_name: String,
    /// The node whose slice the subnet is; empty for a range that nodes share.
    pub node: String,
    /// The `NodeSlicePool` that has to be read for the node's slice of the subnet, in a use that a DEL recorded; empty in others.
    pub slices: String,
    /// Whether the address has a reservation.
    pub is_reserved: bool,
    /// The address that was asked for last, behind those whose requests have no known outcome. It is empty before the first request, and where
    /// the use was recorded by a DEL.
    pub addresses: Vec<IpAddr>,
}

impl Record {
    /// Returns the record of an interface that has nothing yet.
    pub fn new(attachment: Attachment, pod: Pod, network: &str, state: State) -> Self {
        Self {
            attachment,
            pod,
            network: network.to_owned(),
            state,
            uses: Vec::new(),
        }
    }

    /// Adds the pools of a definition that are not there yet.
    pub fn add_pools(&mut self, namespace: &str, definition: &Definition) {
        let slices = definition.slices(&self.network).unwrap_or_default();
        let is_unknown = !slices.is_empty() && definition.node.is_empty();
        if is_unknown && !self.uses.is_empty() {
            // The slice is there already.
            return;
        }
        for range in &definition.ranges {
            let next = Use {
                namespace: namespace.to_owned(),
                subnet: range.subnet(),
                network_name: definition.network_name.clone(),
                node: definition.node.clone(),
                slices: if is_unknown {
                    slices.clone()
                } else {
                    String::new()
                },
                is_reserved: definition.is_reserved,
                addresses: Vec::new(),
            };
            if !self.uses.iter().any(|one| one.is_of_pool_of(&next)) {
                self.uses.push(next);
            }
        }
    }

    /// Returns the owner as objects name it.
    pub fn owner(&self) -> Owner {
        Owner {
            container: self.attachment.container.clone(),
            pod: format!("{}/{}", self.pod.namespace, self.pod.name),
            ifname: self.attachment.ifname.clone(),
        }
    }

    fn parse(bytes: &[u8], boot: &str) -> Option<Self> {
        let value = document(bytes)?;
        let is_given = text(&value, "boot")? == boot && text(&value, "state")? == "given";
        Some(Self {
            attachment: Attachment::read(&value)?,
            pod: Pod::read(value.get("pod")?)?,
            network: text(&value, "network")?,
            // A boot ends every use, and a process that ended every request.
            state: if is_given { State::Given } else { State::Ended },
            uses: all(value.get("uses")?, Use::read)?,
        })
    }

    fn document(&self, boot: &str) -> Vec<u8> {
        let state = match self.state {
            State::Asked => "asked",
            State::Given => "given",
            State::Ended => "ended",
        };
        let uses: Vec<Value> = self.uses.iter().map(Use::value).collect();
        let Attachment { container, ifname } = &self.attachment;
        let document = json!({
            "schema": crate::store::SCHEMA, "boot": boot, "container": container, "ifname": ifname, "pod": self.pod.value(),
            "network": self.network, "state": state, "uses": uses,
        });
        document.to_string().into_bytes()
    }
}

impl Use {
    /// Returns the name of the pool.
    pub fn pool(&self) -> String {
        pool::name(&self.network_name, &self.node, self.subnet)
    }

    fn is_of_pool_of(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.namespace.clone(), one.pool());
        key(self) == key(other)
    }

    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            namespace: text(value, "namespace")?,
            subnet: text(value, "subnet")?.parse().ok()?,
            network_name: text(value, "network_name")?,
            node: text(value, "node").unwrap_or_default(),
            slices: text(value, "slices").unwrap_or_default(),
            is_reserved: value.get("reserved")?.as_bool()?,
            addresses: all(value.get("addresses")?, |address| {
                address.as_str()?.parse().ok()
            })?,
        })
    }

    fn value(&self) -> Value {
        let addresses: Vec<_> = self.addresses.iter().map(IpAddr::to_string).collect();
        json!({
            "namespace": self.namespace, "subnet": self.subnet.to_string(), "network_name": self.network_name, "node": self.node, "slices": self.slices, "reserved": self.is_reserved,
            "addresses": addresses,
        })
    }
}

/// The directory of the records.
#[derive(Debug)]
pub struct Records {
    dir: PathBuf,
    boot: String,
}

impl Records {
    /// Opens the directory, or makes it.
    pub fn open(dir: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_in_boot(dir, &boot_id()?)
    }

    /// Opens the directory in this boot.
    pub(crate) fn open_in_boot(dir: impl Into<PathBuf>, boot: &str) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir)?;
        Ok(Self {
            dir,
            boot: boot.to_owned(),
        })
    }

    /// Reads all records. One that cannot be read stays where it is until a DEL of its container replaces it.
    pub fn all(&self) -> io::Result<Vec<Record>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|ending| ending != "json") {
                fs::remove_file(&path)?;
                continue;
            }
            let record = Record::parse(&fs::read(&path)?, &self.boot);
            all.extend(record.filter(|record| self.path(&record.attachment) == Some(path)));
        }
        Ok(all)
    }

    /// Writes a record in this boot.
    pub fn keep(&self, record: &Record) -> io::Result<()> {
        let path = self.path(&record.attachment);
        let path =
            path.ok_or_else(|| io::Error::other("the container's id is no name of a file"))?;
        write(&path, &record.document(&self.boot))
    }

    /// Forgets an interface that has nothing any more.
    pub fn forget(&self, attachment: &Attachment) -> io::Result<()> {
        match self.path(attachment).map(fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the path of a record. Neither a container's id nor an interface's name has a colon.
    fn path(&self, attachment: &Attachment) -> Option<PathBuf> {
        let Attachment { container, ifname } = attachment;
        let name = format!("{container}:{ifname}.json");
        let is_name = Path::new(&name)
            .file_name()
            .is_some_and(|last| *last == *name);
        is_name.then(|| self.dir.join(name))
    }
}
