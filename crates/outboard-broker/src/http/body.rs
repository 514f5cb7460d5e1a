//! What callers send: as much as it may be, in the time that it may take.

use crate::desk::{Kind, No};
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use outboard_pool::words::OwnerName;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::timeout;

/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of a request for a lease.
pub(super) const OF_A_CLIENT: usize = 64 << 10;

/// The most bytes of a request for the lease of a job, which names its nodes.
pub(super) const OF_A_JOB: usize = 320 << 10;

/// The most bytes of a server's beat without leases: 64 devices, with NVLink between all of them.
pub(super) const OF_A_SERVER: usize = 256 << 10;

/// The most bytes for each lease with devices of the server: that it is used, or gone.
pub(super) const OF_A_LEASE: usize = 256;

/// The most bytes of all bodies that have not come yet as a whole.
const OF_ALL: usize = 256 << 20;

/// The bodies that are being read, by their owners.
#[derive(Debug, Default)]
pub(super) struct Bodies(RefCell<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    of_owners: HashMap<OwnerName, usize>,
}

/// A body so far; its bytes are free for others when dropped.
pub(super) struct Body<'a> {
    bodies: &'a Bodies,
    owner: &'a OwnerName,
    bytes: Vec<u8>,
}

impl Bodies {
    /// The body of that owner's request as what it should be.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        request: Request<Incoming>,
        owner: &OwnerName,
        most: usize,
    ) -> Result<T, No> {
        self.whole(request, owner, most).await?.parsed()
    }

    /// The same as its bytes, which count as long as somebody has them.
    pub(super) async fn whole<'a>(
        &'a self,
        request: Request<Incoming>,
        owner: &'a OwnerName,
        most: usize,
    ) -> Result<Body<'a>, No> {
        let read = timeout(PATIENCE, self.collect(request, owner, most)).await;
        read.unwrap_or_else(|_| {
            let sentence = format!("the body did not come within {} s", PATIENCE.as_secs());
            Err(No::new(Kind::Malformed, sentence))
        })
    }

    async fn collect<'a>(
        &'a self,
        request: Request<Incoming>,
        owner: &'a OwnerName,
        most: usize,
    ) -> Result<Body<'a>, No> {
        let mut coming = Limited::new(request.into_body(), most);
        let mut body = Body { bodies: self, owner, bytes: Vec::new() };
        while let Some(frame) = coming.frame().await {
            let frame = frame.map_err(|error| {
                let sentence = format!("the body cannot be read (at most {most} bytes): {error}");
                No::new(Kind::Malformed, sentence)
            })?;
            if let Ok(data) = frame.into_data() {
                body.add(&data)?;
            }
        }
        Ok(body)
    }
}

impl Body<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it says.
    pub(super) fn parsed<T: DeserializeOwned>(&self) -> Result<T, No> {
        let wrong = |sentence: String| No::new(Kind::Malformed, sentence);
        serde_json::from_slice(&self.bytes).map_err(|error| {
            // What strangers sent is not repeated.
            let at = format!("line {}, column {}", error.line(), error.column());
            match error.classify() {
                serde_json::error::Category::Data => {
                    wrong(format!("the body is not right: {error}"))
                }
                _ => wrong(format!("the body is no JSON ({at})")),
            }
        })
    }

    /// An owner may have as many bytes as are left for others.
    fn add(&mut self, data: &Bytes) -> Result<(), No> {
        let mut counts = self.bodies.0.borrow_mut();
        let of_owner = counts.of_owners.get(self.owner).copied().unwrap_or(0) + data.len();
        if of_owner + counts.all > OF_ALL {
            let sentence = "the broker reads as many requests as it has memory for; ask again";
            return Err(No::new(Kind::Busy, sentence));
        }
        counts.all += data.len();
        counts.of_owners.insert(self.owner.clone(), of_owner);
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        let mut counts = self.bodies.0.borrow_mut();
        counts.all -= self.bytes.len();
        if let Some(of_owner) = counts.of_owners.get_mut(self.owner) {
            *of_owner -= self.bytes.len();
            if *of_owner == 0 {
                counts.of_owners.remove(self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_one_owner_leave_room_for_others() {
        let bodies = Bodies::default();
        let owners = ["bob", "eve", "ada"].map(|name| name.parse::<OwnerName>().unwrap());
        let data = Bytes::from(vec![0; 1 << 20]);
        let fill = |owner| {
            let mut body = Body { bodies: &bodies, owner, bytes: Vec::new() };
            while body.add(&data).is_ok() {}
            body
        };
        let all: Vec<_> = owners.iter().map(fill).collect();
        let sizes: Vec<usize> = all.iter().map(|body| body.bytes.len() >> 20).collect();
        assert_eq!(sizes, [128, 64, 32]);
        drop(all);
        let counts = bodies.0.borrow();
        assert!(counts.all == 0 && counts.of_owners.is_empty());
    }
}
