//go:build tools

// Package kueue names Kueue's controller, so that tests can build it: a module of its own, since it
// is built with another release of Kubernetes' libraries than the cluster.
package kueue

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
