//! What a worker's NCCL asks of the network, and the answers.

use std::os::fd::AsFd;
use std::rc::Rc;

use outboard_control::messages::ToWorker;
use outboard_wire::{Encode, Writer};
use rustix::io::Errno;

use super::attend::Attendant;
use crate::closing::Foreign;

/// An outcome as answers say it.
fn number(outcome: Result<(), Errno>) -> Vec<u8> {
    let errno = outcome.err().map_or(0, Errno::raw_os_error);
    errno.to_le_bytes().to_vec()
}

impl Attendant<'_> {
    pub(super) fn make_socket(&self, request: u64, v6: bool) {
        match self.table.outside.sockets.make(v6) {
            Ok(socket) => self.reply(request, Some((&[], Some(socket.as_fd())))),
            Err(errno) => self.reply(request, Some((&number(Err(errno)), None))),
        }
    }

    pub(super) fn bind_socket(&self, request: u64, socket: Option<&Foreign>, address: &str) {
        let socket = socket.map(AsFd::as_fd).ok_or(Errno::BADF);
        let outcome = socket.and_then(|socket| self.table.outside.sockets.bind(socket, address));
        self.reply(request, Some((&number(outcome), None)));
    }

    pub(super) fn let_socket_listen(&self, request: u64, socket: Option<&Foreign>, backlog: u32) {
        let socket = socket.map(AsFd::as_fd).ok_or(Errno::BADF);
        let sockets = &self.table.outside.sockets;
        let outcome = socket.and_then(|socket| sockets.listen(self.session, socket, backlog));
        self.reply(request, Some((&number(outcome), None)));
    }

    pub(super) fn connect_socket(&self, request: u64, socket: Option<Foreign>, address: String) {
        let (table, answers) = (Rc::clone(self.table), self.answers.clone());
        let connecting = Rc::clone(&self.connecting);
        tokio::task::spawn_local(async move {
            let outcome = match socket.map(Foreign::into_inner) {
                Some(socket) => table.outside.sockets.connect(socket, &address, &connecting).await,
                None => Err(Errno::BADF),
            };
            // The worker may have ended meanwhile.
            let _ = answers.send(ToWorker::Answer { request, payload: Some(number(outcome)) });
        });
    }

    pub(super) fn name_interface(&self, request: u64) {
        let mut writer = Writer::new();
        match self.table.outside.sockets.interface() {
            Ok(interface) => interface.encode(&mut writer),
            Err(Errno::ACCESS) => return self.reply(request, None),
            Err(_) => {}
        }
        self.reply(request, Some((writer.as_slice(), None)));
    }
}
