//! What callers send: as much as it may be, in the time that it may take.

use crate::desk::{Kind, No};
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of a request for a lease.
pub(super) const OF_A_CLIENT: usize = 64 << 10;

/// The most bytes of a server's beat: with all leases that it can use.
pub(super) const OF_A_SERVER: usize = 2 << 20;

/// The body as what it should be.
pub(super) async fn read<T: DeserializeOwned>(
    request: Request<Incoming>,
    most: usize,
) -> Result<T, No> {
    let wrong = |sentence: String| No::new(Kind::Malformed, sentence);
    let collected = timeout(PATIENCE, Limited::new(request.into_body(), most).collect());
    let body = collected
        .await
        .map_err(|_| wrong(format!("the body did not come within {} s", PATIENCE.as_secs())))?
        .map_err(|error| {
            wrong(format!("the body cannot be read (at most {most} bytes): {error}"))
        })?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| {
        // What strangers sent is not repeated.
        let at = format!("line {}, column {}", error.line(), error.column());
        match error.classify() {
            serde_json::error::Category::Data => wrong(format!("the body is not right: {error}")),
            _ => wrong(format!("the body is no JSON ({at})")),
        }
    })
}
