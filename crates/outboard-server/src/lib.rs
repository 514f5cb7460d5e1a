//! Supervisor and workers: serves the devices of a driver library to clients.
