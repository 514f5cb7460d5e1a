//! A broker for those who wait for each answer.

use crate::asked::{Broker, Method};
use crate::connect::Access;
use crate::error::AskError;
use hyper::body::Bytes;
use outboard_pool::api::{PoolView, UsageView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

/// A broker for those who wait for each answer.
#[derive(Debug)]
pub struct Blocking {
    broker: Broker,
    runtime: tokio::runtime::Runtime,
}

impl Blocking {
    /// The broker behind that access.
    ///
    /// # Errors
    ///
    /// If the system has no room for what it takes.
    pub fn new(access: Access) -> io::Result<Blocking> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Blocking { broker: Broker::new(access), runtime })
    }

    /// As [`Broker::ask`], without a body.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn ask<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, AskError> {
        self.runtime.block_on(self.broker.ask(method, path, None::<&()>))
    }

    /// As [`Broker::pool`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn pool(&self) -> Result<PoolView, AskError> {
        self.runtime.block_on(self.broker.pool())
    }

    /// As [`Broker::usage`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn usage(&self) -> Result<Vec<UsageView>, AskError> {
        self.runtime.block_on(self.broker.usage())
    }

    /// As [`Broker::ask`], with a body.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn tell<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, AskError> {
        self.runtime.block_on(self.broker.ask(method, path, Some(body)))
    }

    /// As [`Blocking::tell`], with a body that is written already and a server's proof of its key.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn tell_proven(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        proof: Option<&str>,
    ) -> Result<Bytes, AskError> {
        self.runtime.block_on(self.broker.bytes_proven(method, path, body, proof))
    }

    /// As [`Broker::bytes`], without a body.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn bytes(&self, method: Method, path: &str) -> Result<Bytes, AskError> {
        self.runtime.block_on(self.broker.bytes(method, path, None::<&()>))
    }
}
