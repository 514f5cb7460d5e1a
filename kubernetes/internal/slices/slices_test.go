package slices_test

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/pooltest"
)

// view is what a real broker says of two real servers.
func view(t *testing.T) (*broker.Pool, *pooltest.Pool) {
	t.Helper()
	real := pooltest.Start(t)
	real.Serve(t, "gpu1", 2, "--label", "rack=r7,zone.example/a=1")
	real.Serve(t, "gpu2", 1)
	pool, err := real.Client(t, "viewer", "tests").Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pool, real
}

func TestTheSchedulerGivesOutARealPool(t *testing.T) {
	pool, _ := view(t)

	t.Run("whole devices, each once", func(t *testing.T) {
		s := newScheduler(t, pool)
		seen := map[broker.Exact]bool{}
		for range 3 {
			results := s.give(t, claim(1))
			if len(results) != 1 {
				t.Fatal("there is a device left")
			}
			request := wanted(t, pool, results)
			if !request.Usage.Exclusive || seen[request.Only[0]] {
				t.Errorf("it is not a device of its own: %+v", request)
			}
			seen[request.Only[0]] = true
			if !slices.Equal(results[0].BindingConditions, []string{names.Leased}) {
				t.Errorf("the scheduler does not wait for the lease: %+v", results[0])
			}
		}
		if s.give(t, claim(1)) != nil {
			t.Error("a device was given out twice")
		}
	})

	t.Run("parts of memory and multiprocessors", func(t *testing.T) {
		s := newScheduler(t, pool)
		on1 := with(`device.attributes["outboard.dev"].server == "gpu2"`)
		for range 4 {
			results := s.give(t, claim(1, part("200Mi", "25"), on1))
			if results == nil {
				t.Fatal("a quarter of the device is free")
			}
			request := wanted(t, pool, results)
			if request.Usage != (broker.Usage{Percent: 25}) || request.Memory != 200<<20 {
				t.Errorf("it is asked for %+v", request)
			}
		}
		// Memory would be there: 224 MiB. Multiprocessors are not.
		if s.give(t, claim(1, part("100Mi", "1"), on1)) != nil {
			t.Error("multiprocessors were given out twice")
		}
		s = newScheduler(t, pool)
		if s.give(t, claim(1, part("1000Mi", "1"), on1)) == nil {
			t.Fatal("the memory is there")
		}
		if s.give(t, claim(1, part("100Mi", "1"), on1)) != nil {
			t.Error("memory was given out twice")
		}
		if s.give(t, claim(1, on1)) != nil {
			t.Error("a device in use was given out as a whole")
		}
	})

	t.Run("selectors", func(t *testing.T) {
		for expression, isThere := range map[string]bool{
			`device.attributes["label.outboard.dev"].rack == "r7"`:                         true,
			`device.attributes["label.outboard.dev"].zone_example_a == "1"`:                true,
			`device.attributes["outboard.dev"].model.contains("H100")`:                     false,
			`device.attributes["outboard.dev"].capability.compareTo(semver("5.0.0")) > 0`:  true,
			`device.attributes["outboard.dev"].capability.compareTo(semver("99.0.0")) > 0`: false,
			`device.capacity["outboard.dev"].memory.compareTo(quantity("1Gi")) >= 0`:       true,
			`device.capacity["outboard.dev"].memory.compareTo(quantity("2Gi")) >= 0`:       false,
		} {
			found := newScheduler(t, pool).give(t, claim(1, with(expression)))
			if (found != nil) != isThere {
				t.Errorf("%s: %+v", expression, found)
			}
		}
	})

	t.Run("all on one server", func(t *testing.T) {
		s := newScheduler(t, pool)
		pair := claim(2)
		attribute := resourceapi.FullyQualifiedName("outboard.dev/server")
		pair.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &attribute}}
		results := s.give(t, pair)
		if len(results) != 2 || results[0].Pool != "gpu1" || results[1].Pool != "gpu1" {
			t.Errorf("they are not on the server that has two: %+v", results)
		}
		if request := wanted(t, pool, results); request.Devices != 2 || !request.Usage.Exclusive {
			t.Errorf("it is asked for %+v", request)
		}
	})
}

func TestTheSchedulerLeavesWhatIsNotToBeGivenOut(t *testing.T) {
	pool, _ := view(t)
	all := len(pool.Servers[0].Devices) + len(pool.Servers[1].Devices)
	for what, change := range map[string]struct {
		by   func(*broker.Pool)
		left int
	}{
		"nothing":    {func(*broker.Pool) {}, all},
		"a draining": {func(p *broker.Pool) { p.Servers[1].Condition = broker.Draining }, all - 1},
		"a silent":   {func(p *broker.Pool) { p.Servers[0].Condition = broker.Silent }, all - 2},
		"an ill one": {func(p *broker.Pool) { p.Servers[0].Devices[1].Health = broker.Ill }, all - 1},
		"ours": {func(p *broker.Pool) {
			p.Leases = []broker.Lease{lease(p, "kubernetes", broker.Usage{Exclusive: true, Percent: 100})}
		}, all},
		"somebody else's": {func(p *broker.Pool) {
			p.Leases = []broker.Lease{lease(p, "ada", broker.Usage{Exclusive: true, Percent: 100})}
		}, all - 1},
		"a part of somebody else": {func(p *broker.Pool) {
			p.Leases = []broker.Lease{lease(p, "ada", broker.Usage{Percent: 50})}
		}, all - 1},
	} {
		t.Run(what, func(t *testing.T) {
			changed := copied(pool)
			change.by(changed)
			s, count := newScheduler(t, changed), 0
			for s.give(t, claim(1)) != nil {
				count++
			}
			if count != change.left {
				t.Errorf("%d whole devices were given out, not %d", count, change.left)
			}
		})
	}
	// Of a device of which somebody has a half, the other half is there.
	changed := copied(pool)
	changed.Leases = []broker.Lease{lease(changed, "ada", broker.Usage{Percent: 50})}
	server := with(`device.attributes["outboard.dev"].whole == false`)
	s := newScheduler(t, changed)
	if s.give(t, claim(1, part("100Mi", "51"), server)) != nil {
		t.Error("more than a half was given out")
	}
	if s.give(t, claim(1, part("100Mi", "50"), server)) == nil {
		t.Error("a half is there")
	}
}

func lease(pool *broker.Pool, by string, usage broker.Usage) broker.Lease {
	memory := uint64(512 << 20)
	if usage.Exclusive {
		memory = pool.Servers[0].Devices[0].Memory
	}
	return broker.Lease{AskedBy: by, Devices: []broker.Granted{{
		Server: pool.Servers[0].Name, Device: pool.Servers[0].Devices[0].UUID,
		Memory: memory, Usage: usage,
	}}}
}

func copied(pool *broker.Pool) *broker.Pool {
	other := &broker.Pool{}
	for _, server := range pool.Servers {
		server.Devices = slices.Clone(server.Devices)
		other.Servers = append(other.Servers, server)
	}
	return other
}
