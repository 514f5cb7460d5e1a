package controller

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/claims"
)

// holding is what was asked for a claim, and what was granted.
type holding struct {
	purpose string
	grant   *broker.Grant
	// since is when it was granted or renewed, or else asked for first.
	since time.Time
}

// renewAt is when half of the lease's life is over.
func (h *holding) renewAt() time.Time {
	return h.since.Add(h.grant.Expires.Sub(h.since) / 2)
}

// held are the holdings of all claims.
type held struct {
	mutex sync.Mutex
	all   map[types.UID]holding
}

func (h *held) get(uid types.UID) (holding, bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	found, isThere := h.all[uid]
	return found, isThere
}

func (h *held) put(uid types.UID, what holding) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.all == nil {
		h.all = map[types.UID]holding{}
	}
	h.all[uid] = what
}

func (h *held) remove(uid types.UID) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	delete(h.all, uid)
}

// lost forgets grants from before a look at the pool that did not find them, and says whose.
func (h *held) lost(live map[string]bool, look time.Time) []types.UID {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	var found []types.UID
	for uid, one := range h.all {
		if one.grant != nil && !live[one.purpose] && one.since.Before(look) {
			h.all[uid] = holding{purpose: one.purpose}
			found = append(found, uid)
		}
	}
	return found
}

// uidOf is the claim in a purpose of this cluster.
func uidOf(cluster, purpose string) (types.UID, bool) {
	rest, isOfCluster := strings.CutPrefix(purpose, claims.Prefix(cluster))
	uid, _, _ := strings.Cut(rest, ".")
	return types.UID(uid), isOfCluster
}
