package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd serves one member on loopback. It never syncs to disk: what it holds is thrown away
// with the control plane, and fsync on a shared disk would drown every timing.
func runEtcd() int {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dataDir := flags.String("data-dir", "", "where the member keeps its data")
	clientURL := flags.String("client-url", "", "http://127.0.0.1:PORT that clients use")
	peerURL := flags.String("peer-url", "", "http://127.0.0.1:PORT of the only peer")
	_ = flags.Parse(os.Args[1:])

	client, err := url.Parse(*clientURL)
	if err != nil || client.Host == "" {
		fmt.Fprintln(os.Stderr, "etcd: --client-url is not a URL:", *clientURL)
		return 2
	}
	peer, err := url.Parse(*peerURL)
	if err != nil || peer.Host == "" {
		fmt.Fprintln(os.Stderr, "etcd: --peer-url is not a URL:", *peerURL)
		return 2
	}
	config := embed.NewConfig()
	config.Dir = *dataDir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = 8 << 30

	server, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		fmt.Fprintln(os.Stderr, "etcd: not ready after a minute")
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-stop:
		// Not server.Close(): it waits seven seconds for clients that never leave. What was acknowledged
		// is in the log already, as it must be for a member that is killed.
		return 0
	case err := <-server.Err():
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
}
