//! What the supervisor knows about a session.

use std::rc::Rc;

use outboard_control::identity::Identity;
use outboard_wire::handshake::TraceParent;
use serde::{Deserialize, Serialize};

use crate::pool::Holding;
use crate::sharing::AdmittedPlace;

/// What the supervisor keeps about a session and does not send to its worker.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) identity: Identity,
    /// How others name its holder.
    pub(crate) holder: String,
    /// Its holder, if it only sends queries: as the holder, but for networks that are one machine.
    pub(crate) asker: String,
    /// Where the client is, for people.
    pub(crate) peer: String,
    pub(crate) kind: Kind,
    /// Its admission, released when the last clone is dropped.
    pub(crate) place: Option<Rc<AdmittedPlace>>,
    /// The lease by which it was admitted; in use until the last clone is dropped.
    pub(crate) lease: Option<Rc<Holding>>,
    /// The span of the client's that the session is part of.
    pub(crate) parent: Option<TraceParent>,
}

impl About {
    /// Whose session it is.
    pub(crate) fn owner(&self) -> String {
        self.identity.owner.clone()
    }
}

/// The purpose of a connection with a worker of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    #[default]
    Session,
    Management,
    Probe,
}
