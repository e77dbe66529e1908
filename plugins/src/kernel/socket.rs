//! A netlink socket whose errors are in the words that CNI plugins print.

use netlink::Socket;
use rustix::net::Protocol;

use super::codec::Message;
use super::errno::Errno;
use super::netns::Namespace;
use crate::error::{self, Context};

/// A socket for requests to the kernel; each file beside this one adds those of a kind of object.
pub(crate) struct Netlink(Socket);

impl Netlink {
    /// Opens a socket for links, addresses and routes in the thread's network namespace.
    pub(crate) fn open() -> error::Result<Self> {
        Self::open_protocol(None).context(not_opened)
    }

    /// Opens a socket for links, addresses and routes in this network namespace.
    pub(crate) fn open_in(namespace: &Namespace) -> error::Result<Self> {
        namespace.enter(Self::open).context(not_opened)?
    }

    /// Opens a socket of another protocol in the thread's network namespace.
    pub(crate) fn open_protocol(protocol: Option<Protocol>) -> Result<Self, Errno> {
        Ok(Self(Socket::open(protocol)?))
    }

    /// Sends a request that has no reply but success or an error.
    pub(crate) fn request(&mut self, message: Message) -> Result<(), Errno> {
        Ok(self.0.request(message)?)
    }

    /// Sends a request and returns what follows the header of its one reply.
    pub(crate) fn get(&mut self, message: Message) -> Result<Vec<u8>, Errno> {
        Ok(self.0.get(message)?)
    }

    /// Requests all objects of a kind and returns what follows the header of each.
    pub(crate) fn dump(&mut self, message: impl Fn() -> Message) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.0.dump(message)?)
    }

    /// The same, of the objects that are selected; the others take no memory.
    pub(crate) fn dump_selected(
        &mut self,
        message: impl Fn() -> Message,
        is_selected: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.0.dump_selected(message, is_selected)?)
    }

    /// Sends requests that the kernel does all or not at all; the first and the last one enclose the others. Returns the first error.
    pub(crate) fn transaction(&mut self, messages: Vec<Message>) -> Result<(), Errno> {
        Ok(self.0.transaction(messages)?)
    }
}

fn not_opened() -> String {
    "failed to open a netlink socket".to_owned()
}
