//! What broker, servers and clients say to each other: JSON over HTTPS.
//!
//! | request | who | body | answer |
//! |---|---|---|---|
//! | `POST /v1/beat` | server | [`Beat`] | [`BeatAnswer`] |
//! | `GET /v1/me` | all | | [`Me`] |
//! | `POST /v1/requests` | client, scheduler, admin | [`Ask`] | [`Standing`] |
//! | `POST /v1/jobs` | scheduler, admin | [`JobAsk`] | [`Standing`] |
//! | `GET /v1/jobs/PURPOSE` | its asker, its nodes | | [`JobGrant`] |
//! | `GET /v1/requests/TICKET?wait_ms=N` | its owner, its asker, admin | | [`Standing`] |
//! | `DELETE /v1/requests/TICKET` | its owner, its asker, admin | | nothing |
//! | `GET /v1/purposes/PURPOSE?wait_ms=N` | its asker | | [`Standing`] |
//! | `DELETE /v1/purposes/PURPOSE` | its asker | | nothing |
//! | `GET /v1/leases/N` | its owner, its asker, admin | | [`Grant`] |
//! | `POST /v1/leases/N/renew` | its owner, its asker, admin | | [`Grant`] |
//! | `POST /v1/leases/N/prolong` | its asker (a scheduler), admin | [`Prolong`] | [`Grant`] |
//! | `DELETE /v1/leases/N` | its owner, its asker, admin | | nothing |
//! | `GET /v1/leases/N/why` | all but servers and nodes | | [`Why`] |
//! | `DELETE /v1/servers/NAME` | admin | | nothing |
//! | `GET /v1/pool?after=TOLD` | all but servers and nodes | | a page of the [`PoolView`], [`PoolView::next`] |
//! | `GET /v1/history?seconds=N&points=N` | all but servers and nodes | | [`HistoryView`] |
//! | `GET /v1/usage?after=TOLD` | all but servers and nodes | | a page of a list of [`UsageView`], empty after the last, [`UsageTold`] |
//! | `GET /metrics` | all but servers and nodes | | OpenMetrics |
//!
//! An *asker* is who has asked: the owner, or a scheduler or admin in the owner's name. Who is
//! refused gets a status of 400 or more, and a [`Refused`] with the sentence.

mod ask;
mod beat;
mod history;
mod job;
mod page;
mod role;
mod view;

pub use ask::{Ask, Grant, Me, Prolong, Reach, Standing};
pub use beat::{Beat, BeatAnswer, LEASES_OF_A_SERVER, LeaseUse, PROOF_HEADER};
pub use history::{HistoryView, Point};
pub use job::{JobAsk, JobGrant};
pub use page::{Told, UsageTold};
pub use role::Role;
pub use view::{
    DeviceView, LeaseView, OwnerView, PoolView, ServerView, TicketView, UsageView, Why,
};

use serde::{Deserialize, Serialize};

/// Why somebody gets nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// What is wrong, and what would help.
    pub error: String,
}
