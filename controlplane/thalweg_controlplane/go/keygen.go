package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// runKeygen prints a new private key for service account tokens. The API server and the controller
// manager read the public half out of the same file. P-256, for it is made in no time.
func runKeygen() int {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		var der []byte
		if der, err = x509.MarshalECPrivateKey(key); err == nil {
			err = pem.Encode(os.Stdout, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "keygen:", err)
		return 1
	}
	return 0
}
