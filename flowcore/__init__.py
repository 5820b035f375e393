"""The pure core of Thalweg: values in, values out.

No clock, no I/O, no logging, no randomness: what a round decides can be replayed from its
inputs. The rooms, top imports bottom::

    explain > rounds > (solve | costs) > network > classes > filters > model

``round_loop.run_round`` is the one main function.
"""
