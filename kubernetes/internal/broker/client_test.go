package broker_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/pooltest"
)

func TestWhoIsBelieved(t *testing.T) {
	pool := pooltest.Start(t)
	me, err := pool.Client(t, "scheduler", "kubernetes").Me(t.Context())
	if err != nil || me.Owner != "kubernetes" || me.Role != "scheduler" {
		t.Fatalf("%+v, %v", me, err)
	}
	access := pool.Access(t, "scheduler", "kubernetes")
	for want, change := range map[string]func(*broker.Access){
		"has the fingerprint": func(a *broker.Access) {
			a.Fingerprint = "sha256:" + strings.Repeat("0a", 32)
		},
		"certificate":          func(a *broker.Access) { a.Fingerprint = "" },
		"token cannot be read": func(a *broker.Access) { a.TokenFile += "-not-there" },
		"64 digits":            func(a *broker.Access) { a.Fingerprint = "sha256:0a" },
		"https://HOST":         func(a *broker.Access) { a.URL = "http://broker" },
		"no certificate in":    func(a *broker.Access) { a.Fingerprint, a.Authorities = "", a.TokenFile },
	} {
		changed := access
		change(&changed)
		client, err := broker.New(changed)
		if err == nil {
			_, err = client.Me(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	wrong := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrong, []byte("obt_"+strings.Repeat("0", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	access.TokenFile = wrong
	client, err := broker.New(access)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Me(t.Context()); err == nil || broker.IsFinal(err) || broker.IsUnknown(err) {
		t.Errorf("a stranger is told %v", err)
	}
}

// What is more than a page is asked for page after page.
func TestAPoolIsReadInPages(t *testing.T) {
	pages := map[string]string{
		"":            `{"servers": [{"name": "gpu1"}], "leases": [], "next": "gpu1,,7,a@b"}`,
		"gpu1,,7,a@b": `{"servers": [{"name": "gpu2"}], "leases": [{"number": 7}]}`,
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, after, _ := strings.Cut(r.URL.RawQuery, "after=")
		fmt.Fprint(w, pages[after])
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	fingerprint := fmt.Sprintf("sha256:%x", sha256.Sum256(server.Certificate().Raw))
	client, err := broker.New(broker.Access{URL: server.URL, Fingerprint: fingerprint, TokenFile: token})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := client.Pool(t.Context())
	if err != nil || len(pool.Servers) != 2 || len(pool.Leases) != 1 {
		t.Fatalf("%+v, %v", pool, err)
	}
}

// A scheduler may not touch what others have asked for.
func TestASchedulerEndsItsOwnOnly(t *testing.T) {
	pool := pooltest.Start(t)
	pool.Serve(t, "gpu1", 1)
	ask := broker.Ask{
		ClientKey: strings.Repeat("0a", 32), Purpose: "a", LifeSeconds: 60,
		Request: broker.Request{
			Owner: "ada", Group: "everybody", Devices: 1, Memory: 1 << 20,
			Usage: broker.Usage{Percent: 10}, Servers: "any", MayShare: "same_key",
		},
	}
	first := pool.Client(t, "scheduler", "first")
	granted, err := first.Ask(t.Context(), ask)
	if err != nil || !granted.IsGranted() {
		t.Fatalf("%+v, %v", granted, err)
	}
	again, err := first.Ask(t.Context(), ask)
	if err != nil || again.Number != granted.Number {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	other := pool.Client(t, "scheduler", "second")
	if _, err := other.Standing(t.Context(), "a"); !broker.IsUnknown(err) {
		t.Errorf("another scheduler learns %v", err)
	}
	if _, err := other.Renew(t.Context(), granted.Number); err == nil {
		t.Error("another scheduler has renewed it")
	}
	for range 2 {
		if err := first.End(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}
}

func TestOneOfSeveralLeads(t *testing.T) {
	pool := pooltest.Start(t)
	access := pool.Access(t, "scheduler", "kubernetes")
	// Nobody is at the first address and at the last one.
	access.URL = "https://127.0.0.1:1, " + pool.URL + ",https://127.0.0.1:2"
	client, err := broker.New(access)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.Me(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	access.URL = pool.URL + ",http://broker"
	if _, err := broker.New(access); err == nil {
		t.Fatal("one address is none of a broker")
	}
}
